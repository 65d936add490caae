package proctest_test

import "syscall"

// dieWithUs makes a child die with the test's process, however that ends.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
