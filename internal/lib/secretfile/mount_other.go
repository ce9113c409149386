//go:build !linux

package secretfile

// isReadOnly reports false: only Linux is asked.
func isReadOnly(string) bool { return false }
