//go:build !unix

package secretfile

import "io/fs"

// isTrusted reports true: there are no owners to go by.
func isTrusted(_, _ fs.FileInfo) bool { return true }
