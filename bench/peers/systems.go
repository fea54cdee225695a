package main

import (
	"database/sql"
	"strings"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/bench/peers/rivers"
)

// The engines.
const (
	postgres = "postgres"
	sqlite   = "sqlite"
	files    = "files" // files in the system's own format
)

// program measures a system that cannot be linked into this program: the directory of its module,
// the package in it, and its argument. The zero value is this program.
type program struct{ module, path, argument string }

// system is a system to be measured.
type system struct {
	engine, strategy string
	program          program
	// note describes how it was used, and its limitations.
	note string
}

func (s system) name() string { return s.engine + "/" + s.strategy }

// arguments returns the arguments with which its program measures the job on its standard input.
func (s system) arguments() []string {
	if s.program == (program{}) {
		return []string{measureArgument}
	}
	return strings.Fields(s.program.argument)
}

// systems are in the order of reports.
var systems = []system{
	{postgres, "chanq", program{}, "defaults: one goroutine on Producer.C, one on Consumer.C"},
	{postgres, "chanq-notify", program{}, "defaults, and a pgnotify.Notifier in Config"},
	{postgres, "chanq-tuned", program{}, "InFlight 2 (order of a producer is given up), batches of 512, Prefetch 4000"},
	{postgres, "raw", program{"..", ".", "peer"}, "a bare loop over chanq's statements in batches of 500, one connection claiming while another acks, and JSON; no lease is extended, no failure is met"},
	{postgres, "river-pgx-tuned", program{}, "InsertManyFast (COPY) of 5,000; MaxWorkers 1000, FetchCooldown 2 ms, FetchPollInterval 20 ms"},
	{postgres, "river-pgx-default", program{}, "InsertMany of 5,000; MaxWorkers 100, all else default: its FetchCooldown of 100 ms limits it to about 1,000/s on purpose"},
	{postgres, "river-sql-tuned", program{"rivers", "./databasesql", ""}, "the newest version that is served for database/sql; InsertMany of 5,000; no LISTEN/NOTIFY; else as river-pgx-tuned"},
	{postgres, "watermill-sql", program{}, "a log with one offset: no retry of one message past others, one effective subscriber, its transaction open while handlers run; batches of 500, PollInterval 10 ms"},
	{sqlite, "chanq", program{}, "defaults, as above"},
	{sqlite, "river-sqlite-tuned", program{"riversqlite", ".", ""}, "InsertMany of 5,000, one connection; else as river-pgx-tuned"},
	{sqlite, "backlite", program{}, "transactions of 500 inserts, 100 workers, one connection; completions are not fenced"},
	{files, "jetstream-sync", program{}, "NATS server in the process, SyncAlways; 256 publishes under way"},
	{files, "jetstream-nosync", program{}, "the same without SyncAlways, its default: NOT AS DURABLE, an acknowledged publish may be lost with the machine"},
}

// longSystems are the systems of a sustained run that names none.
var longSystems = []string{"postgres/chanq", "postgres/river-pgx-tuned", "postgres/watermill-sql"}

// sleepingSystems are the systems of a run with idle receivers that names none.
var sleepingSystems = []string{"postgres/chanq-notify", "postgres/chanq", "postgres/river-pgx-default", "postgres/river-pgx-tuned", "postgres/watermill-sql"}

func systemNames(of []system) []string {
	names := make([]string, len(of))
	for i, s := range of {
		names[i] = s.name()
	}
	return names
}

const (
	riverModule = "github.com/riverqueue/river"
	liteModule  = "github.com/mikestefanello/backlite"
	waterModule = "github.com/ThreeDotsLabs/watermill-sql/v3"
	natsModule  = "github.com/nats-io/nats-server/v2"
)

// linked are the systems of this program, by engine and strategy.
var linked = map[string]peer.System{
	"postgres/chanq":             {Open: openChanqPostgres(chanq.ProducerConfig{}, chanq.ConsumerConfig{})},
	"postgres/chanq-notify":      {Open: openChanqNotifier},
	"postgres/chanq-tuned":       {Open: openChanqPostgres(chanqTunedProducer, chanqTunedConsumer)},
	"postgres/river-pgx-tuned":   {Module: riverModule, Open: openRiver(rivers.Tuned, insertByCopy)},
	"postgres/river-pgx-default": {Module: riverModule, Open: openRiver(rivers.Default, nil)},
	"postgres/watermill-sql":     {Module: waterModule, Open: openWatermill},
	"sqlite/chanq":               {Open: openChanqSQLite},
	"sqlite/backlite":            {Module: liteModule, Open: openBacklite},
	"files/jetstream-sync":       {Module: natsModule, Open: openJetStream(true)},
	"files/jetstream-nosync":     {Module: natsModule, Open: openJetStream(false)},
}

func openPostgres(dsn string) (*sql.DB, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(peer.Connections)
	db.SetMaxIdleConns(peer.Connections)
	return db, nil
}
