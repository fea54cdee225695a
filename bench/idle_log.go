package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// serverLog is the log of a PostgreSQL server that logs lock waits.
type serverLog struct {
	path string // "": the log is not read
	at   int64
}

// notifyLock identifies in the log the lock that a commit with a notification holds.
const notifyLock = "of database 0"

// openLog starts at the end of the log. The server must log lock waits, after a short time.
func openLog(ctx context.Context, s *store, path string) (*serverLog, error) {
	if path == "" {
		return &serverLog{}, nil
	}
	var waits, after string
	err := s.db.QueryRowContext(ctx, `SELECT current_setting('log_lock_waits'), current_setting('deadlock_timeout')`).Scan(&waits, &after)
	if err == nil && (waits != "on" || after != "10ms") {
		err = fmt.Errorf("-log: the server has log_lock_waits=%s and deadlock_timeout=%s: it needs on and 10ms", waits, after)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &serverLog{path, info.Size()}, nil
}

// waits returns how many waits were logged since the last call; nil if the log is not read.
func (l *serverLog) waits() (*int, error) {
	if l.path == "" {
		return nil, nil
	}
	file, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(l.at, io.SeekStart); err != nil {
		return nil, err
	}
	n := 0
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return &n, nil // an incomplete line is read again
		}
		if err != nil {
			return nil, err
		}
		l.at += int64(len(line))
		if strings.Contains(line, "still waiting for") && strings.Contains(line, notifyLock) {
			n++
		}
	}
}
