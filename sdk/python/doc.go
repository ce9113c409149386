// Package python checks that the messages of the Python package fermata are those of the protos.
package python
