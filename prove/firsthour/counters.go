package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Two counters that have a verdict.
const (
	pageReads    = "Page lookups/sec"
	compilations = "SQL Compilations/sec"
)

// counters are those of sys.dm_os_performance_counters that only grow, although their names say that they are per second.
var counters = []struct{ name, instance, short string }{
	{pageReads, "", "reads"},
	{"Lock Requests/sec", "_Total", "locks"},
	{"Lock Waits/sec", "_Total", "lock waits"},
	{"Latch Waits/sec", "", "latch waits"},
	{"Log Bytes Flushed/sec", "_Total", "log bytes"},
	{"Skipped Ghosted Records/sec", "", "ghosts"},
	{"Batch Requests/sec", "", "requests"},
	{compilations, "", "compiled"},
}

// versionStore is a counter that shows the present size.
const versionStore = "Version Store Size (KB)"

// counterText reads all of them. The server counts for all databases, so nothing else should use it.
var counterText = func() string {
	var names []string
	for _, c := range counters {
		names = append(names, "N'"+c.name+"'")
	}
	return `SELECT RTRIM(counter_name), RTRIM(instance_name), cntr_value FROM sys.dm_os_performance_counters WHERE counter_name IN (` + strings.Join(append(names, "N'"+versionStore+"'"), ", ") + `)`
}()

// reading is what the counters say at one time. It lacks those that the server does not show.
type reading struct {
	values   map[string]int64
	versions int64 // kB
}

func (h *hour) read(ctx context.Context) (reading, error) {
	r := reading{values: map[string]int64{}}
	rows, err := query(ctx, h.admin, counterText)
	if err != nil {
		return r, err
	}
	for _, row := range rows {
		name, instance, value := strings.TrimSpace(fmt.Sprint(row[0])), strings.TrimSpace(fmt.Sprint(row[1])), row[2].(int64)
		if name == versionStore {
			r.versions = value
		}
		for _, c := range counters {
			if c.name == name && c.instance == instance {
				r.values[name] += value
			}
		}
	}
	return r, nil
}

// counted is what some messages have cost.
type counted struct {
	messages int64
	took     time.Duration
	values   map[string]int64
	versions int64
	unread   error // why there are no values
}

// count counts what the messages cost that f sends and receives.
func (h *hour) count(ctx context.Context, f func() (messages int64, err error)) (counted, error) {
	before, unread := h.read(ctx)
	start := time.Now()
	n, err := f()
	if err != nil {
		return counted{}, err
	}
	c := counted{messages: n, took: time.Since(start), values: map[string]int64{}}
	after, err := h.read(ctx)
	if c.unread = cmp.Or(unread, err); c.unread != nil {
		return c, nil
	}
	for name, value := range after.values {
		c.values[name] = value - before.values[name]
	}
	c.versions = after.versions
	return c, nil
}

// per is a counter per message.
func (c counted) per(name string) float64 {
	return float64(c.values[name]) / float64(max(1, c.messages))
}

// lacks returns why a counter is missing, or nil.
func (c counted) lacks(name string) error {
	if _, ok := c.values[name]; !ok && c.unread == nil {
		return fmt.Errorf("the server does not show the counter %s", name)
	}
	return c.unread
}

// sum adds what several samples have cost. It lacks what one of them lacks.
func sum(list []counted) counted {
	all := counted{values: maps.Clone(list[0].values), messages: list[0].messages, unread: list[0].unread}
	for _, c := range list[1:] {
		all.messages += c.messages
		all.unread = cmp.Or(all.unread, c.unread)
		for name := range all.values {
			all.values[name] += c.values[name]
			if c.lacks(name) != nil {
				delete(all.values, name)
			}
		}
	}
	return all
}

// heading is that of a table of lines.
func heading(first string) []string {
	line := []string{first, "messages/s"}
	for _, c := range counters {
		line = append(line, c.short)
	}
	return append(line, "versions kB")
}

func (c counted) line(first string) []string {
	line := []string{first, fmt.Sprintf("%.0f", float64(c.messages)/max(c.took.Seconds(), 0.001))}
	for _, counter := range counters {
		value := "-"
		if c.lacks(counter.name) == nil {
			value = fmt.Sprintf("%.3f", c.per(counter.name))
		}
		line = append(line, value)
	}
	if c.unread != nil {
		return append(line, "-")
	}
	return append(line, fmt.Sprint(c.versions))
}
