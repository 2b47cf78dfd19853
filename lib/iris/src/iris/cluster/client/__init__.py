"""The module path from which older programs import a task's facts about itself."""
