"""What goes wrong by the user's hand, and what cannot be done: no traceback belongs to either."""


class UserError(Exception):
    """Input that cannot work: what, where, and what would be right. The command line exits with 2."""


class NotApplicable(Exception):
    """A method has no meaning in a scenario (`exclusive` where nobody holds the full model): a dash, not a failure."""
