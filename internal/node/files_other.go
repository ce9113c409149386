//go:build !unix

package node

// maxOpenFiles is the process's limit of open files; 0: unknown.
func maxOpenFiles() uint64 { return 0 }
