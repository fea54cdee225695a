package main

import (
	"database/sql"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/bench/peers/rivers"
)

// The engines.
const (
	postgres = "postgres"
	sqlite   = "sqlite"
	files    = "files" // the system's own
)

// system is what is measured.
type system struct {
	engine, strategy string
	// program is where its program is, if this one cannot be linked with it: the
	// directory of the module, and the package in it.
	program [2]string
	// note says how it was driven, and what it cannot do.
	note string
}

func (s system) name() string { return s.engine + "/" + s.strategy }

// arguments make its program measure what its standard input says.
func (s system) arguments() []string {
	if s.program[0] == "" {
		return []string{measureArgument}
	}
	return nil
}

// systems in the order of reports.
var systems = []system{
	{postgres, "chanq", [2]string{}, "defaults: one goroutine on Producer.C, one on Consumer.C"},
	{postgres, "chanq-tuned", [2]string{}, "InFlight 2 (order of a producer is given up), batches of 512, Prefetch 4000"},
	{postgres, "river-pgx-tuned", [2]string{}, "InsertManyFast (COPY) of 5,000; MaxWorkers 1000, FetchCooldown 2 ms, FetchPollInterval 20 ms"},
	{postgres, "river-pgx-default", [2]string{}, "InsertMany of 5,000; MaxWorkers 100, all else default: its FetchCooldown of 100 ms limits it to about 1,000/s on purpose"},
	{postgres, "river-sql-tuned", [2]string{"rivers", "./databasesql"}, "the newest version that is served for database/sql; InsertMany of 5,000; no LISTEN/NOTIFY; else as river-pgx-tuned"},
	{postgres, "watermill-sql", [2]string{}, "a log with one offset: no retry of one message past others, one effective subscriber, its transaction open while handlers run; batches of 500, PollInterval 10 ms"},
	{sqlite, "chanq", [2]string{}, "defaults, as above"},
	{sqlite, "river-sqlite-tuned", [2]string{"riversqlite", "."}, "InsertMany of 5,000, one connection; else as river-pgx-tuned"},
	{sqlite, "backlite", [2]string{}, "transactions of 500 inserts, 100 workers, one connection; completions are not fenced"},
	{files, "jetstream-sync", [2]string{}, "NATS server in the process, SyncAlways; 256 publishes under way"},
	{files, "jetstream-nosync", [2]string{}, "the same without SyncAlways, its default: NOT AS DURABLE, an acknowledged publish may be lost with the machine"},
}

// longSystems are those of a sustained run that names none.
var longSystems = []string{"postgres/chanq", "postgres/river-pgx-tuned", "postgres/watermill-sql"}

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
