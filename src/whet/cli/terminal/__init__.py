"""What a terminal shows: live displays, tables, the characters it knows."""
