"""Where built configs are loaded, checked and timed: in this process or in another."""
