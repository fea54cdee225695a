// Package measure has the common parts of the programs that measure chanq: the cost of a phase, the statements of a driver, messages at
// a rate, and results with their medians and tables. It does not depend on a queue.
package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// Result is one measurement of one strategy, and one line of JSON. Rates are messages per second. Statements, allocations and CPU time
// are per message, over the whole life of a message (enqueue and drain) unless a phase is named. Fields that were not measured are
// omitted.
//
// A line with axis belongs to growth, with at_s to an interval of a sustained run, with step to idle consumers or the cost of order, and
// with senders to many callers. Any other line belongs to latency if it has latencies and to throughput if it has rates. Batch is 0 in
// lines of bench/peers.
type Result struct {
	Engine    string `json:"engine"`
	Strategy  string `json:"strategy"`
	Version   string `json:"version,omitempty"` // of another module
	N         int    `json:"n"`
	BodyBytes int    `json:"body_bytes"`
	Batch     int    `json:"batch,omitempty"`
	Send      string `json:"send,omitempty"`
	Senders   int    `json:"senders,omitempty"` // goroutines that wait for their sends, of Batch messages per call
	Keys      int    `json:"keys,omitempty"`    // of the messages of an ordered queue; 0: a plain one
	Round     int    `json:"round"`

	EnqueuePerS          float64 `json:"enqueue_per_s,omitempty"`
	DrainPerS            float64 `json:"drain_per_s,omitempty"`
	PipelinePerS         float64 `json:"pipeline_per_s,omitempty"`
	FirstDeliveryMS      float64 `json:"first_delivery_ms,omitempty"` // included in drain
	StatementsPerMessage float64 `json:"statements_per_message,omitempty"`
	EnqueueStatements    float64 `json:"enqueue_statements_per_message,omitempty"`
	DrainStatements      float64 `json:"drain_statements_per_message,omitempty"`
	AllocsPerMessage     float64 `json:"allocs_per_message,omitempty"`
	EnqueueAllocs        float64 `json:"enqueue_allocs_per_message,omitempty"`
	DrainAllocs          float64 `json:"drain_allocs_per_message,omitempty"`
	EnqueueCPU           float64 `json:"enqueue_cpu_us_per_message,omitempty"` // of the whole process; 0 where unknown
	DrainCPU             float64 `json:"drain_cpu_us_per_message,omitempty"`
	PipelineCPU          float64 `json:"pipeline_cpu_us_per_message,omitempty"`
	EnqueueServerCPU     float64 `json:"enqueue_server_cpu_us_per_message,omitempty"` // of all processes of a PostgreSQL on this machine
	DrainServerCPU       float64 `json:"drain_server_cpu_us_per_message,omitempty"`
	PipelineServerCPU    float64 `json:"pipeline_server_cpu_us_per_message,omitempty"`
	EnqueueWAL           float64 `json:"enqueue_wal_bytes_per_message,omitempty"` // of PostgreSQL
	DrainWAL             float64 `json:"drain_wal_bytes_per_message,omitempty"`
	Redelivered          int64   `json:"redelivered,omitempty"`
	LeftRows             int64   `json:"left_rows,omitempty"` // after drain
	LeftBytes            int64   `json:"left_bytes,omitempty"`

	// Wall-clock time in the statements of each kind, including the wait for their connection.
	EnqueueStatement float64 `json:"enqueue_statement_us_per_message,omitempty"`
	ClaimStatement   float64 `json:"claim_statement_us_per_message,omitempty"`
	AckStatement     float64 `json:"ack_statement_us_per_message,omitempty"`

	// Latency: the time from when a message was due to be sent until its reader receives it. CommitP50 is the time of an enqueue of one
	// message.
	RatePerS  float64 `json:"rate_per_s,omitempty"`
	Load      float64 `json:"load,omitempty"`      // RatePerS as a fraction of saturation
	Processes int     `json:"processes,omitempty"` // 1: the reader's process sends; 2: another process sends
	LatencyN  int     `json:"latency_n,omitempty"`
	P50       float64 `json:"enqueue_to_deliver_p50_us,omitempty"`
	P99       float64 `json:"enqueue_to_deliver_p99_us,omitempty"`
	P999      float64 `json:"enqueue_to_deliver_p999_us,omitempty"`
	Max       float64 `json:"enqueue_to_deliver_max_us,omitempty"`
	Saturated bool    `json:"saturated,omitempty"` // the rate was not reached: latencies are meaningless
	CommitP50 float64 `json:"commit_p50_us,omitempty"`
	CommitP99 float64 `json:"commit_p99_us,omitempty"`

	// Latency of idle consumers: one process sends, and Processes-1 are idle between messages. Statements while idle are per process,
	// and those per message exclude them.
	Step           string  `json:"step,omitempty"` // of the measurement
	Gap            string  `json:"gap,omitempty"`  // between messages
	Notifier       bool    `json:"notify,omitempty"`
	IdleStatements float64 `json:"idle_statements_per_s,omitempty"`
	Connections    int     `json:"connections,omitempty"` // of all processes
	LockWaits      *int    `json:"lock_waits,omitempty"`  // for the lock of notifications, since the previous result; nil: not measured

	// A sustained run: one result at the end of each interval, with the size of the live table at that time.
	AtS       float64   `json:"at_s,omitempty"`
	Held      bool      `json:"held,omitempty"` // a snapshot of another session was open
	Consumers int       `json:"consumers,omitempty"`
	Backlog   int       `json:"backlog,omitempty"`
	Ages      Histogram `json:"ages,omitempty"`                  // of messages received in the interval, from send to delivery
	WALPerMsg float64   `json:"wal_bytes_per_message,omitempty"` // of the interval, all bytes that the server wrote in it
	HotShare  float64   `json:"hot_share,omitempty"`             // of the interval's updated rows, PostgreSQL
	Footprint

	// Growth: the cost of a message at one size of one axis.
	Axis         string  `json:"axis,omitempty"`
	Size         int     `json:"size,omitempty"`
	WallPerMsg   float64 `json:"wall_us_per_message,omitempty"`
	CPUPerMsg    float64 `json:"cpu_us_per_message,omitempty"`
	HeapPerMsg   float64 `json:"heap_bytes_per_message,omitempty"`
	HeapBytes    float64 `json:"heap_bytes,omitempty"`
	FormulaBytes float64 `json:"formula_bytes,omitempty"`

	Scale *Scale `json:"scale,omitempty"` // of idle consumers

	GOOS       string `json:"goos,omitempty"`
	GOARCH     string `json:"goarch,omitempty"`
	GoVersion  string `json:"go_version,omitempty"`
	GOMAXPROCS int    `json:"gomaxprocs,omitempty"`
	CPU        string `json:"cpu,omitempty"`
	Server     string `json:"server,omitempty"` // version and durability of the database
	Command    string `json:"command,omitempty"`
}

// Here returns a result with only the machine.
func Here() Result {
	return Result{
		GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, GoVersion: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		CPU: processor(),
	}
}

// Machine describes where the result was measured.
func (r Result) Machine() string {
	return strings.TrimPrefix(fmt.Sprintf("%s, %s/%s, GOMAXPROCS %d, %s", r.CPU, r.GOOS, r.GOARCH, r.GOMAXPROCS, r.GoVersion), ", ")
}

// processor returns the name of the processor, or "" if unknown.
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

// Write writes one result as a line of JSON.
func Write(w io.Writer, r Result) error { return json.NewEncoder(w).Encode(r) }

// Read reads lines of results.
func Read(r io.Reader) (results []Result, err error) {
	for lines := json.NewDecoder(r); ; {
		var one Result
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

// ReadFile is Read for a file.
func ReadFile(path string) ([]Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	results, err := Read(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return results, nil
}
