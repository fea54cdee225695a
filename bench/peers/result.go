package main

import (
	"encoding/json"
	"io"
	"runtime"
)

// result is one measurement of one system. The fields that chanq's own bench
// has, too, have its names; what does not apply is 0 or missing.
type result struct {
	Engine               string  `json:"engine"`
	Strategy             string  `json:"strategy"`
	Version              string  `json:"version,omitempty"`
	N                    int     `json:"n"`
	BodyBytes            int     `json:"body_bytes"`
	Round                int     `json:"round"`
	EnqueuePerS          float64 `json:"enqueue_per_s"`
	DrainPerS            float64 `json:"drain_per_s"`
	PipelinePerS         float64 `json:"pipeline_per_s"`
	FirstDeliveryMS      float64 `json:"first_delivery_ms"` // of drain, which includes it
	StatementsPerMessage float64 `json:"statements_per_message,omitempty"`
	EnqueueStatements    float64 `json:"enqueue_statements_per_message,omitempty"`
	DrainStatements      float64 `json:"drain_statements_per_message,omitempty"`
	EnqueueWAL           float64 `json:"enqueue_wal_bytes_per_message,omitempty"` // of PostgreSQL
	DrainWAL             float64 `json:"drain_wal_bytes_per_message,omitempty"`
	EnqueueCPU           float64 `json:"enqueue_cpu_us_per_message"` // of the client process; with an embedded engine that is all
	DrainCPU             float64 `json:"drain_cpu_us_per_message"`
	Redelivered          int64   `json:"redelivered"`
	LeftRows             int64   `json:"left_rows"` // after drain
	LeftBytes            int64   `json:"left_bytes"`
	RatePerS             int     `json:"rate_per_s"`
	LatencyN             int     `json:"latency_n"`
	P50                  int64   `json:"enqueue_to_deliver_p50_us"`
	P99                  int64   `json:"enqueue_to_deliver_p99_us"`
	P999                 int64   `json:"enqueue_to_deliver_p999_us"`
	Max                  int64   `json:"enqueue_to_deliver_max_us"`
	Saturated            bool    `json:"saturated,omitempty"` // the system could not be sent to at the rate: latencies say nothing
	GOOS                 string  `json:"goos"`
	GOARCH               string  `json:"goarch"`
	GoVersion            string  `json:"go_version"`
	GOMAXPROCS           int     `json:"gomaxprocs"`
}

func newResult(o options, s system, round int) result {
	return result{
		Engine: s.engine, Strategy: s.strategy, N: o.n, BodyBytes: o.body, Round: round,
		RatePerS: o.rate, LatencyN: o.latencyN,
		GOOS: runtime.GOOS, GOARCH: runtime.GOARCH, GoVersion: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0),
	}
}

// writeJSON writes one result as a line.
func writeJSON(w io.Writer, r result) error { return json.NewEncoder(w).Encode(r) }
