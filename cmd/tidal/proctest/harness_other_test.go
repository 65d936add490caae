//go:build !linux

package proctest_test

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return nil }
