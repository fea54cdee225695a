package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

// workerCommand makes this program one of the processes of a measurement: it
// does the task that its arguments, a kind and JSON, describe.
const workerCommand = "worker"

// runProcess does a task in a process of its own.
func runProcess(ctx context.Context, kind string, task any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, self, workerCommand, kind, string(text))
	var complaint bytes.Buffer
	command.Stderr = &complaint
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s process: %w: %s", kind, err, strings.TrimSpace(complaint.String()))
	}
	return nil
}

func runWorker(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("worker is for the bench itself")
	}
	var task interface {
		run(context.Context, *store) error
		where() place
	}
	switch args[0] {
	case "send":
		task = &senderTask{}
	case "drain":
		task = &drainTask{}
	case "sustain":
		task = &sustainTask{}
	default:
		return fmt.Errorf("unknown task %q", args[0])
	}
	if err := json.Unmarshal([]byte(args[1]), task); err != nil {
		return err
	}
	s, err := findEngine(task.where().Engine).connect(task.where())
	if err != nil {
		return err
	}
	return errors.Join(task.run(ctx, s), s.remove())
}

// senderTask sends N messages at a rate. Message i is due at its own time,
// whatever became of those before, and carries that time: a sender that is held
// up counts as latency.
type senderTask struct {
	Place          place
	Rate           float64
	N, Body, Batch int
}

func (t senderTask) where() place { return t.Place }

func (t senderTask) run(ctx context.Context, s *store) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
	producer, err := queue.Producer(chanq.ProducerConfig{BatchRows: t.Batch})
	if err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	start := time.Now()
	for i := 0; i < t.N && err == nil; i++ {
		due := start.Add(time.Duration(float64(i) / t.Rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		body := make([]byte, t.Body)
		stamp(body, due)
		select {
		case producer.C() <- chanq.Message[[]byte]{Body: body}:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return errors.Join(err, producer.Close(context.WithoutCancel(ctx)))
}
