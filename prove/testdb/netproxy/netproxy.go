// Package netproxy is a proxy between a client and a server in tests, with the faults of networks: it delays,
// throttles, resets, stops one direction or both, and recovers.
//
// It is a proxy of streams, not of packets: held data is delivered later and in order, as TCP does when it can
// retransmit, unless the connection is forgotten or reset.
package netproxy

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/memnet"
)

// Direction is the direction of a piece of data.
type Direction uint8

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

func (d Direction) String() string { return [...]string{"to server", "to client"}[d] }

// Conditions of the network, for all connections. The zero value is a network without faults.
type Conditions struct {
	// Latency is added to every piece of data, in each direction.
	Latency time.Duration
	// BytesPerSecond bounds each direction of each connection. Default: 0, no bound.
	BytesPerSecond int
	// Hold stops a direction: no data arrives, and neither end gets an error.
	Hold [2]bool
}

// Silence holds both directions: a black hole. Connections are accepted and
// stay silent.
var Silence = Conditions{Hold: [2]bool{true, true}}

// Piece is some data that is about to be forwarded.
type Piece struct {
	Conn      int // connections are counted from 1 in the order of their arrival
	Direction Direction
	Bytes     int
}

// Proxy forwards connections. Its methods are safe for concurrent use.
//
// Its goroutines, all joined by Close: one that accepts; and for each connection one that dials, two that read and two
// that write, which end with it.
type Proxy struct {
	listener          net.Listener
	network, upstream string
	work              sync.WaitGroup

	mu         sync.Mutex
	conditions Conditions
	changed    chan struct{} // closed and replaced when conditions change
	resetAt    func(Piece) bool
	links      map[*link]bool
	accepted   int
	closed     bool
}

// Start is Listen until the test ends.
func Start(t testing.TB, network, address string) *Proxy {
	t.Helper()
	p, err := Listen(network, address)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// Listen listens until Close and forwards to the server at address of network "tcp" or "unix", for which it listens on
// the loopback interface, or of package memnet's.
func Listen(network, address string) (*Proxy, error) {
	ln, err := listen(network)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: ln, network: network, upstream: address, changed: make(chan struct{}), links: map[*link]bool{}}
	p.work.Go(p.accept)
	return p, nil
}

func listen(network string) (net.Listener, error) {
	if network == memnet.Network {
		return memnet.Listen(), nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// Addr returns the address for clients.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// Set changes the conditions immediately, also for data in progress.
func (p *Proxy) Set(c Conditions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conditions = c
	close(p.changed)
	p.changed = make(chan struct{})
}

// Reset cuts every connection so that both ends get a reset (a Unix socket: an end of file), and returns their number.
func (p *Proxy) Reset() int {
	links := p.all()
	for _, l := range links {
		l.cut()
	}
	return len(links)
}

// ResetAt makes pick choose pieces before which their connection is reset. Several goroutines call pick at once. Nil
// ends it.
func (p *Proxy) ResetAt(pick func(Piece) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAt = pick
}

// Forget makes every current connection permanently silent, under any later conditions, like a firewall that lost its
// state: neither end gets an error. It returns their number.
func (p *Proxy) Forget() int {
	links := p.all()
	for _, l := range links {
		l.forgotten.Do(func() { close(l.forgot) })
	}
	return len(links)
}

// Freeze stops both directions of one connection until thaw, which can be called repeatedly. Data in progress is
// delivered then, even if its sender has closed the connection meanwhile. n counts the connections cyclically in the
// order of their arrival. Without connections, ok is false.
func (p *Proxy) Freeze(n int) (thaw func(), ok bool) {
	links := p.all()
	if len(links) == 0 {
		return nil, false
	}
	slices.SortFunc(links, func(a, b *link) int { return a.number - b.number })
	return links[n%len(links)].freeze(), true
}

// Open returns the number of connections.
func (p *Proxy) Open() int { return len(p.all()) }

// Close cuts all connections and waits for the proxy's goroutines. It can be called repeatedly.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // might be closed already
	p.Reset()
	p.work.Wait()
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) now() (c Conditions, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conditions, p.changed
}

func (p *Proxy) picked(piece Piece) bool {
	p.mu.Lock()
	pick := p.resetAt
	p.mu.Unlock()
	return pick != nil && pick(piece)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		l := newLink(p, client)
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			l.cut()
			return
		}
		p.accepted++
		l.number = p.accepted
		p.links[l] = true
		p.work.Go(l.run)
		p.mu.Unlock()
	}
}

func (p *Proxy) drop(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
