"""The one exception that a user is meant to see."""


class UserError(Exception):
    """Something the user can put right: one line that names what is wrong and the way out.

    The command line prints it without a traceback and exits with code 2.
    """
