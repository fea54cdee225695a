package consume

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Identity returns the row of a consumer of this process. The default name consists of its host and process.
func Identity(id [16]byte, name string, leaseFor time.Duration) sqlbatch.Consumer {
	m := sqlbatch.Consumer{ID: id, Name: name, Host: hostName(), Process: os.Getpid(), For: leaseFor}
	if name == "" {
		m.Name = fmt.Sprintf("%s/%d", m.Host, m.Process)
	}
	return m
}

// maxHost leaves room for a slash and the process ID in a name.
const maxHost = sqlbatch.MaxConsumerText - 21

// hostName returns "" if the system has no host name.
func hostName() string {
	host, _ := os.Hostname()
	host = strings.ReplaceAll(host, "\x00", "")
	return strings.ToValidUTF8(host[:min(len(host), maxHost)], "")
}
