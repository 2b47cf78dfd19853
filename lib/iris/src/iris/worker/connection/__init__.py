"""The session with the controller: one stream, opened anew when it breaks."""
