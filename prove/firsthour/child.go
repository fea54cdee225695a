package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// afterInterrupt is how long a child process may take to end after Ctrl-C.
const afterInterrupt = 10 * time.Second

// child runs a program in the checkout, and passes what it prints to read. It ends with ctx, with the processes that it has started.
func (h *hour) child(ctx context.Context, env []string, read func(io.Reader) error, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = h.root
	cmd.Env = append(os.Environ(), env...)
	kill := group(cmd)
	cmd.WaitDelay = afterInterrupt
	var said strings.Builder
	cmd.Stderr = &said
	out, in := io.Pipe()
	cmd.Stdout = in
	reading := make(chan error, 1)
	go func() {
		err := read(out)
		_, _ = io.Copy(io.Discard, out) // if read has returned early, the program must not wait
		reading <- err
	}()
	err := cmd.Run()
	if ctx.Err() != nil {
		kill()
	}
	in.Close()
	if read := <-reading; err == nil {
		return read
	}
	return fmt.Errorf("%w: %s", err, brief(said.String()))
}
