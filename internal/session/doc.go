// Package session keeps pinned connections of a *sql.DB, apart from the application's
// use of it: a settle never waits for a connection that a handler holds.
//
// A Pool has the sessions of all queues on one *sql.DB. It is divided by kind of work
// into lanes (Claim, Settle, Extend, Enqueue, Pipe, Note), and no statement ever
// waits for a session of another lane. A Part is what one producer, consumer or pipe
// may use of a lane.
//
// # How many there are
//
// A part says how many sessions it may use at once, and uses no more: a statement that
// hangs, or was left behind, counts until its driver returns. So at most as many
// sessions exist as the parts that are open may use together, and those of one queue
// that hang are never all that another queue has.
//
// A session is connected when a statement finds none idle in its lane, and the statement
// takes whichever comes first, that one or one that others give back. Where the attempt
// takes long, another one is made beside it. Statements in no hurry (RunPatient: the looks
// of idle consumers) come one after another: any number of idle consumers share one
// session. A session that nobody needed for a while is closed, without anybody asking. So
// producers and consumers that are idle hold none. One stays while leases are held, for
// their extension: over a slow network it may take long to connect (Expect).
//
// # Where the *sql.DB has a limit
//
// Handlers may use up SetMaxOpenConns, and keep what they have while they wait for a
// settle, whose session must be there already. Each lane has two reserved connections then,
// or one if its parts may use no more than one. They are connected before there is
// work (Fill), kept while idle, and shared by all queues. The second one is for when the
// first one hangs. Join fails if the limit is below the sum of all reserved connections and
// one for the application.
//
// A lane takes a connection in addition only while more than one is to spare. It returns it
// after a tenth of a second of idleness, and at once if the application has come to use up
// the limit. A statement without a session waits for one of its lane, first come first
// served. So if everything is in use, and both reserved connections of a lane hang, the
// other statements of that lane wait until these end, or time out.
//
// The limit is asked for whenever it matters, and may be changed at any time: connections
// are reserved from the next statement of their lane on. Nothing that is open is cut when
// the limit becomes too small for them, only the next Join fails.
//
// # Age
//
// A session whose statement ended in a known way is used again; any other one is closed,
// and so is its connection. Before it is used, a session that is old, or was idle for a
// minute, is renewed: its connection is closed, another one is taken, and has to answer.
//
// A database with one writer (Traits.OneWriter) has one session for all parts, which
// stays: statements queue up for it in order, and its page cache stays warm.
package session
