package measure

// Scale is the cost of many idle consumers, in total unless stated otherwise.
type Scale struct {
	About   string `json:"about"`
	Queues  int    `json:"queues"`
	Schemas int    `json:"schemas"`
	Slots   int    `json:"slots,omitempty"`
	Limit   int    `json:"limit,omitempty"` // of connections of a process

	Connections  []int              `json:"connections"`    // of the processes, one sample per second
	ConnectsPerS float64            `json:"connects_per_s"` // to the database, by any program
	AskedPerS    map[string]float64 `json:"asked_per_s"`    // statements by their kind
	ServerCPU    float64            `json:"server_cpu"`     // processors; 0 if unknown
	ClientCPU    float64            `json:"client_cpu"`
	ServerBytes  int64              `json:"server_bytes"` // of all its processes, with their share of shared memory
	Backends     int                `json:"backends"`

	HeapPerConsumer float64 `json:"heap_bytes_per_consumer"`
	RSSPerConsumer  float64 `json:"rss_bytes_per_consumer"` // beyond that of the process without consumers
	RSS             int64   `json:"rss_bytes"`
	Goroutines      float64 `json:"goroutines_per_consumer"`
}

// Statements returns the statements per second, of all kinds.
func (s Scale) Statements() (perSecond float64) {
	for _, n := range s.AskedPerS {
		perSecond += n
	}
	return perSecond
}
