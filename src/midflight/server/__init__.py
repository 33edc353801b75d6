"""The one loop around the controller: journal, HTTP API, and the backend that does the work."""
