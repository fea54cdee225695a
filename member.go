package chanq

import (
	"os"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// newMember is this process as a member, for a time.
func newMember(name string, d time.Duration) sqlbatch.Member {
	return sqlbatch.Member{ID: NewID(), Name: name, Host: hostName(), Process: os.Getpid(), For: d}
}

// hostName is "" where the system does not tell.
func hostName() string {
	host, _ := os.Hostname()
	host = strings.ToValidUTF8(strings.ReplaceAll(host, "\x00", ""), "")
	for len(host) > maxHost {
		host = strings.ToValidUTF8(host[:maxHost], "")
	}
	return host
}

// maxHost leaves room for a slash and the process in a name.
const maxHost = sqlbatch.MaxMemberText - 21
