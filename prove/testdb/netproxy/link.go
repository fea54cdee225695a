package netproxy

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/chanq/chanq/mssqltest/memnet"
)

// link is one connection through the proxy. Each direction has a reader, which adds a timestamp to the data, and a
// writer, which forwards it when the conditions allow. Their queue bounds the data in progress.
type link struct {
	proxy  *Proxy
	number int
	client net.Conn

	gone      context.Context // cut: both ends are closed
	end       context.CancelFunc
	forgot    chan struct{} // closed: permanently silent
	forgotten sync.Once

	mu      sync.Mutex
	server  net.Conn // nil until dialled
	freezes int      // freezes without a thaw
	thawed  chan struct{}
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: client, forgot: make(chan struct{})}
	l.gone, l.end = context.WithCancel(context.Background())
	return l
}

// stamped is data with its time of arrival.
type stamped struct {
	data []byte
	at   time.Time
}

const (
	pieceBytes = 16 << 10
	underWay   = 16 // pieces of one direction between its reader and its writer
	sliceRate  = 50 // slices of throttled data in a second
)

// run dials the server and forwards until both directions have ended.
func (l *link) run() {
	defer l.proxy.drop(l)
	defer l.cut()
	// In a black hole the server does not see the connection either.
	if !l.wait(ToServer, time.Now()) {
		return
	}
	server, err := dialServer(l.gone, l.proxy.network, l.proxy.upstream)
	if err != nil {
		return // no server: the client sees a reset
	}
	l.mu.Lock()
	l.server = server
	cut := l.gone.Err() != nil
	l.mu.Unlock()
	if cut {
		_ = server.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.forward(ToServer, l.client, server) })
	both.Go(func() { l.forward(ToClient, server, l.client) })
	both.Wait()
	l.close() // without cut, which would drop the data in progress
}

func dialServer(ctx context.Context, network, address string) (net.Conn, error) {
	if network == memnet.Network {
		return memnet.Dial(ctx, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// forward moves data one way until its source ends, then forwards the end.
func (l *link) forward(d Direction, from, to net.Conn) {
	queue := make(chan stamped, underWay)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		for {
			data := make([]byte, pieceBytes)
			n, err := from.Read(data)
			if n > 0 {
				select {
				case queue <- stamped{data[:n], time.Now()}:
				case <-l.gone.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer reader.Wait()
	for piece := range queue {
		if !l.deliver(d, piece, to) {
			l.cut()
			return
		}
	}
	// The end of a stream is delayed as data is.
	if half, ok := to.(interface{ CloseWrite() error }); ok && l.wait(d, time.Now()) {
		_ = half.CloseWrite() // the other end might be gone
	}
}

// deliver writes a piece when the conditions allow, and reports whether the link continues.
func (l *link) deliver(d Direction, piece stamped, to net.Conn) bool {
	if !l.wait(d, piece.at) {
		return false
	}
	if l.proxy.picked(Piece{Conn: l.number, Direction: d, Bytes: len(piece.data)}) {
		return false
	}
	for rest := piece.data; len(rest) > 0; {
		if !l.wait(d, piece.at) {
			return false
		}
		n := len(rest)
		if c, _ := l.proxy.now(); c.BytesPerSecond > 0 {
			n = min(n, max(1, c.BytesPerSecond/sliceRate))
			if !l.pause(time.Duration(n) * time.Second / time.Duration(c.BytesPerSecond)) {
				return false
			}
		}
		if _, err := to.Write(rest[:n]); err != nil {
			return false
		}
		rest = rest[n:]
	}
	return true
}

// freeze stops the link until each freeze has its thaw.
func (l *link) freeze() (thaw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freezes++; l.freezes == 1 {
		l.thawed = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.freezes--; l.freezes == 0 {
			close(l.thawed)
			l.thawed = nil
		}
	})
}

// frozen returns a channel that is closed when the link is no longer frozen; nil if it is not frozen.
func (l *link) frozen() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.thawed
}

// wait waits until data that arrived at came can be forwarded. It reports false if the link is cut first.
func (l *link) wait(d Direction, came time.Time) bool {
	for {
		if thawed := l.frozen(); thawed != nil {
			select {
			case <-thawed:
				continue
			case <-l.forgot:
			case <-l.gone.Done():
				return false
			}
		}
		c, changed := l.proxy.now()
		select {
		case <-l.forgot:
			<-l.gone.Done()
			return false
		default:
		}
		var timer <-chan time.Time
		if !c.Hold[d] {
			left := time.Until(came.Add(c.Latency))
			if left <= 0 {
				return l.gone.Err() == nil
			}
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-changed:
		case <-l.forgot:
		case <-l.gone.Done():
			return false
		}
	}
}

func (l *link) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.gone.Done():
		return false
	}
}

// cut closes both ends immediately. Data that TCP has not delivered is lost, and both ends get a reset.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone.Err() != nil {
		return
	}
	l.end()
	for _, c := range []net.Conn{l.client, l.server} {
		if resets, ok := c.(interface{ SetLinger(int) error }); ok {
			_ = resets.SetLinger(0)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// close ends a link whose both directions have ended.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	_ = l.client.Close()
	_ = l.server.Close()
}
