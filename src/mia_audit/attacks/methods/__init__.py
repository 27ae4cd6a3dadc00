"""The attacks, registered under the names that configs use."""
