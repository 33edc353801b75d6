"""What the server and the operator share to be monitored: Prometheus's format, and a small HTTP
server for few pages."""
