// Command chanq runs the queues of chanq from a shell: it makes and shows
// their tables, sends and receives messages, and does what operators do. Its
// demo needs nothing but Go: go run ./cmd/chanq demo.
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
)

// main lets the first interrupt drain and the second one abort.
func main() {
	ctx, interrupt := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Writing to a closed pipe must fail, not kill: messages that could not be printed
	// are released.
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
