package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"time"
)

// years are the releases whose containers this command can start.
var years = []string{"2019", "2022", "2025"}

const (
	startFor   = 4 * time.Minute // a container, after its image was pulled
	removeFor  = 30 * time.Second
	startEvery = time.Second
)

// start starts Microsoft's container and sets the dsn. stop removes the container; it is never nil.
func (h *hour) start(ctx context.Context) (stop func(), err error) {
	password := "Aa1-" + rand.Text()
	image := "mcr.microsoft.com/mssql/server:" + h.docker + "-latest"
	h.report.say("starting %s (for amd64: on Apple silicon enable Rosetta in Docker's settings; 2025 does not run there)", image)
	name := "chanq-firsthour-" + strings.ToLower(rand.Text()[:8])
	ran := true
	stop = func() { // even if Ctrl-C came before the command had ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeFor)
		defer cancel()
		if _, err := docker(ctx, "rm", "--force", "--volumes", name); err != nil && ran {
			h.report.say("the container %s might be left: %v", name, err)
		}
	}
	_, err = docker(ctx, "run", "--detach", "--rm", "--name", name, "--platform", "linux/amd64", "--env", "ACCEPT_EULA=Y", "--env", "MSSQL_PID=Developer",
		"--env", "MSSQL_SA_PASSWORD="+password, "--publish", "127.0.0.1::1433", image)
	if err != nil {
		ran = ctx.Err() != nil // Docker might have started it before it was interrupted
		return stop, err
	}
	address, err := docker(ctx, "port", name, "1433/tcp")
	if err != nil {
		return stop, err
	}
	address, _, _ = strings.Cut(address, "\n")
	dsn := url.URL{Scheme: "sqlserver", User: url.UserPassword("sa", password), Host: address, RawQuery: "database=master&encrypt=disable"}
	h.options.dsn = dsn.String()
	return stop, h.recovered(ctx, &server{address: &dsn})
}

// recovered waits until the server accepts logins.
func (h *hour) recovered(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	for {
		err := s.greet(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the container does not accept logins after %v: %w", startFor, err)
		case <-time.After(startEvery):
		}
	}
}

// docker runs one of docker's commands and returns what it prints.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	kill := group(cmd) // Ctrl-C must not end the removal
	cmd.WaitDelay = afterInterrupt
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		kill()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("-docker: the program docker is not installed")
	}
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
