"""The commands of `fedbench`, one a file, named after it. Heavy imports stand inside the functions."""

# By name what each is for, in the order of `--help`, for which none is imported.
COMMANDS = {
    "init": "Write a folder with a suite and an idea of your own.",
    "suites": "List, show and copy the suites that ship with fedbench.",
    "run": "Run a suite; what is finished is kept.",
    "deploy": "Run a suite on machines that have examples of their own.",
    "plan": "Show a suite's cells and their cost; nothing is trained.",
    "compare": "Print leaderboards from results.",
    "report": "Write results as one page that opens offline.",
    "reproduce": "Run the cells of results folders again, and compare.",
    "board": "Put a method on the board: write, check and re-run entries.",
    "merge": "Join results of several machines.",
    "pack": "Pack finished cells into tables.",
    "plot": "Draw pictures of results (png, svg or pdf).",
    "export": "Write a cell's model for PEFT, loralib or timm.",
    "methods": "List the methods, what they limit, and their papers.",
    "plugins": "List, show, check and begin what suites can name.",
    "data": "List, check and prepare data sets.",
    "devices": "Which devices there are, and which size of each method fits them.",
    "choose": "Which method for which device: what fits, what it costs, how good it is.",
    "schema": "The JSON Schema of suites, for editors.",
    "doctor": "Check this machine: what would stop a run, and the fix.",
}
# Commands that are no more, and what to use in their place.
GONE = {
    "tune": "`fedbench compare tuning --format json` has each winner's values; write them into the suite's methods",
}
MODULES = {"pack": "merge"}  # of the commands that stand in a module of another name
