"""Files that mean harm, built when the tests run; and that no source could open them."""
