//go:build !linux

package drive

import "time"

func exactTimers() {}

func nanosleep(d time.Duration) { time.Sleep(d) }
