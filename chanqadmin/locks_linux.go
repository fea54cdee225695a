package chanqadmin

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// writeByte is where a connection locks the index of a write-ahead log to write (https://www.sqlite.org/walformat.html, section 2.2).
const writeByte = 120

// writerOf returns the process that has the write lock of a file with a write-ahead log, and its program, or 0. It does not open the
// index: closing it would end the locks of this process.
func writerOf(file string) (process int64, program string) {
	index, err := os.Stat(file + "-shm")
	if err != nil {
		return 0, ""
	}
	of, ok := index.Sys().(*syscall.Stat_t)
	list, err := os.ReadFile("/proc/locks")
	if !ok || err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(list)) {
		var number, kind, mode, access, place string
		var pid, first, last int64
		if n, _ := fmt.Sscan(line, &number, &kind, &mode, &access, &pid, &place, &first, &last); n != 8 {
			continue
		}
		if access == "WRITE" && first <= writeByte && writeByte <= last && strings.HasSuffix(place, fmt.Sprint(":", of.Ino)) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			return pid, strings.TrimSpace(string(name))
		}
	}
	return 0, ""
}
