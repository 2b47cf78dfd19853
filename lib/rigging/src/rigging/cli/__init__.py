"""What command lines of this project share; no command is here. It needs click, which those libraries depend on."""
