//go:build !linux

package playground

import "syscall"

// childAttr asks nothing of systems that cannot tie a child to its parent.
func childAttr() *syscall.SysProcAttr { return nil }
