package proc

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Busy is the processor time that the whole machine has used, and what was taken from
// it by others on its host; zero where /proc/stat cannot be read.
func Busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return busy(first)
}

// busy adds up the line "cpu user nice system idle iowait irq softirq steal ...", of
// which guest times, the last two, are part of the first two.
func busy(line string) (d time.Duration) {
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		d += time.Duration(n) * (time.Second / ticks)
	}
	return d
}

// Own is the processor time of this process and of its children that have ended.
func Own() (d time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return d
}
