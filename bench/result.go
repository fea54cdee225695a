package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"strings"
)

// result is one measurement of one strategy, and one line of JSON. Rates are
// messages a second; statements, allocations and CPU time are per message, over
// the whole life of a message (enqueue and drain) where no phase is named. What
// was not measured is left out.
//
// Other programs may write the same lines, bench/peers does: report -in takes
// both. A line with axis is one of growth, one with at_s of a sustained run; another one is of latency where it has
// latencies and of throughput where it has rates. Batch is 0 in other programs'.
type result struct {
	Engine    string `json:"engine"`
	Strategy  string `json:"strategy"`
	N         int    `json:"n"`
	BodyBytes int    `json:"body_bytes"`
	Batch     int    `json:"batch,omitempty"`
	Send      string `json:"send,omitempty"`
	Round     int    `json:"round"`

	EnqueuePerS          float64 `json:"enqueue_per_s,omitempty"`
	DrainPerS            float64 `json:"drain_per_s,omitempty"`
	PipelinePerS         float64 `json:"pipeline_per_s,omitempty"`
	StatementsPerMessage float64 `json:"statements_per_message,omitempty"`
	AllocsPerMessage     float64 `json:"allocs_per_message,omitempty"`
	EnqueueAllocs        float64 `json:"enqueue_allocs_per_message,omitempty"`
	DrainAllocs          float64 `json:"drain_allocs_per_message,omitempty"`
	EnqueueCPU           float64 `json:"enqueue_cpu_us_per_message,omitempty"` // of the whole process; 0 where unknown
	DrainCPU             float64 `json:"drain_cpu_us_per_message,omitempty"`

	// Time in the statements of each kind, by the clock on the wall, with waiting
	// for their connection.
	EnqueueStatement float64 `json:"enqueue_statement_us_per_message,omitempty"`
	ClaimStatement   float64 `json:"claim_statement_us_per_message,omitempty"`
	AckStatement     float64 `json:"ack_statement_us_per_message,omitempty"`

	// Latency: from the time at which a message was due to be sent until its
	// reader has it. CommitP50 is what one enqueue of one message takes there.
	RatePerS  float64 `json:"rate_per_s,omitempty"`
	Load      float64 `json:"load,omitempty"`      // RatePerS as a part of saturation
	Processes int     `json:"processes,omitempty"` // 1: the reader's process sends, 2: another one
	P50       float64 `json:"enqueue_to_deliver_p50_us,omitempty"`
	P99       float64 `json:"enqueue_to_deliver_p99_us,omitempty"`
	P999      float64 `json:"enqueue_to_deliver_p999_us,omitempty"`
	CommitP50 float64 `json:"commit_p50_us,omitempty"`

	// A sustained run: one result for each interval, at its end, with what the live
	// table took then.
	AtS     float64 `json:"at_s,omitempty"`
	Held    bool    `json:"held,omitempty"` // somebody's snapshot was open
	Backlog int     `json:"backlog,omitempty"`
	footprint

	// Growth: what a message costs at one size of one axis.
	Axis         string  `json:"axis,omitempty"`
	Size         int     `json:"size,omitempty"`
	WallPerMsg   float64 `json:"wall_us_per_message,omitempty"`
	CPUPerMsg    float64 `json:"cpu_us_per_message,omitempty"`
	HeapPerMsg   float64 `json:"heap_bytes_per_message,omitempty"`
	HeapBytes    float64 `json:"heap_bytes,omitempty"`
	FormulaBytes float64 `json:"formula_bytes,omitempty"`

	GOOS       string `json:"goos,omitempty"`
	GOARCH     string `json:"goarch,omitempty"`
	GoVersion  string `json:"go_version,omitempty"`
	GOMAXPROCS int    `json:"gomaxprocs,omitempty"`
	CPU        string `json:"cpu,omitempty"`
	Server     string `json:"server,omitempty"` // version and durability of the database
	Command    string `json:"command,omitempty"`
}

// newResult has what is the same for every measurement of a run.
func newResult(o options, strategy string) result {
	return result{
		Engine: o.engine, Strategy: strategy, BodyBytes: o.body,
		GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, GoVersion: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		CPU: processor(), Command: o.command,
	}
}

// on adds what the database says of itself.
func (r *result) on(ctx context.Context, s *store) { r.Server = s.about(ctx) }

// processor is the name of the processor, "" where the system does not tell.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// writeJSON writes one result as a line.
func writeJSON(w io.Writer, r result) error { return json.NewEncoder(w).Encode(r) }

// readJSON reads lines of results.
func readJSON(r io.Reader) (results []result, err error) {
	for lines := json.NewDecoder(r); ; {
		var one result
		switch err := lines.Decode(&one); err {
		case nil:
			results = append(results, one)
		case io.EOF:
			return results, nil
		default:
			return nil, err
		}
	}
}
