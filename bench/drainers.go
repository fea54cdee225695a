package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/chanq/chanq"
)

// drainTask takes messages from the moment its standard input has a line until
// that ends.
type drainTask struct {
	Place place
	Batch int
}

func (t drainTask) where() place { return t.Place }

func (t drainTask) run(ctx context.Context, s *store) error {
	queue, err := s.open(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	orders := bufio.NewReader(os.Stdin)
	if _, err := orders.ReadString('\n'); err != nil {
		return err
	}
	consumer, err := queue.Consume(ctx, chanq.ConsumerConfig{Prefetch: 2 * t.Batch, LeaseFor: leaseFor})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, orders) // ends with the input, which the parent closes
		consumer.Stop()
	}()
	for lease := range consumer.C() {
		if err = lease.Ack(); err != nil {
			consumer.Stop()
		}
	}
	return errors.Join(err, consumer.Shutdown(context.WithoutCancel(ctx)), consumer.Err())
}

// drainers are processes with a drainTask.
type drainers struct {
	inputs []io.WriteCloser
	failed chan struct{} // closed when one ends before end
	once   sync.Once
	group  sync.WaitGroup
	errs   []error
}

// startDrainers returns when all are connected.
func startDrainers(ctx context.Context, t drainTask, n int) (*drainers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	d := &drainers{failed: make(chan struct{}), errs: make([]error, n)}
	for i := range n {
		command := exec.CommandContext(ctx, self, workerCommand, "drain", string(text))
		var complaint bytes.Buffer
		command.Stderr = &complaint
		input, err := command.StdinPipe()
		if err != nil {
			return nil, errors.Join(err, d.end())
		}
		output, err := command.StdoutPipe()
		if err != nil {
			return nil, errors.Join(err, d.end())
		}
		if err := command.Start(); err != nil {
			return nil, errors.Join(err, d.end())
		}
		d.inputs = append(d.inputs, input)
		ready := make(chan struct{})
		d.group.Go(func() {
			_, _ = bufio.NewReader(output).ReadString('\n')
			close(ready)
			if err := command.Wait(); err != nil {
				d.errs[i] = fmt.Errorf("drain process: %w: %s", err, strings.TrimSpace(complaint.String()))
			}
			d.once.Do(func() { close(d.failed) })
		})
		<-ready
	}
	return d, nil
}

func (d *drainers) begin() {
	for _, input := range d.inputs {
		_, _ = io.WriteString(input, "go\n") // one that has ended says so by failed
	}
}

// end lets all of them end and waits for that.
func (d *drainers) end() error {
	for _, input := range d.inputs {
		_ = input.Close()
	}
	d.group.Wait()
	return errors.Join(d.errs...)
}
