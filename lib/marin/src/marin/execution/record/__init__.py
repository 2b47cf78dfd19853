"""What is written down about steps and runs beside their outputs, and compared with what a run would make."""
