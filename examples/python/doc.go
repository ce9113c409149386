// Package python has a worker in Python. Its test generates and checks the messages of the protocol,
// worker_service_pb2.py.
package python
