package s3

import (
	"io"
	"syscall"
	"unsafe"
)

// scratch is where the kernel would put what it is told to throw away; with MSG_TRUNC it does not even copy.
var scratch [1 << 20]byte

// discard throws away up to n bytes of an object that are still in the kernel, and says how many. It waits for one.
func (x *conn) discard(n int64) (int64, error) {
	x.left = n
	if err := x.raw.Read(x.drop); err != nil {
		x.broken = err
		return 0, err
	}
	switch {
	case x.errno != 0:
		x.broken = x.errno
		return 0, x.errno
	case x.seen == 0:
		x.broken = io.EOF
		return 0, io.EOF
	}
	return int64(x.seen), nil
}

func (x *conn) dropOnce(fd uintptr) bool {
	for {
		n, _, errno := syscall.Syscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&scratch)),
			uintptr(min(x.left, int64(len(scratch)))), syscall.MSG_TRUNC, 0, 0)
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		}
		x.seen, x.errno = int(n), errno
		return true
	}
}
