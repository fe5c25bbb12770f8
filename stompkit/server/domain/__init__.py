"""The broker without transport: hosts, destinations and the processing of frames."""
