// Command chanq runs the queues of chanq from a shell: it creates and shows their tables, sends and
// receives messages, and performs operator tasks. Its demo needs only Go: go run ./cmd/chanq demo.
//
// Install it: go install github.com/chanq/chanq/cmd/chanq@latest.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports the end by SIGINT
	exitPipe        = 141 // as a shell reports the end by SIGPIPE
)

// main drains after the first interrupt and aborts after the second one.
func main() {
	ctx, interrupt := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Writing to a closed pipe must return an error instead of killing the process, so that
	// messages that could not be printed are released.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		<-signals
		interrupt()
		<-signals
		fmt.Fprintln(os.Stderr, "\nchanq: aborted")
		os.Exit(exitInterrupted)
	}()
	os.Exit(Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
