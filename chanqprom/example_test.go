package chanqprom_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqprobe"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/embedded"
)

// A worker exports metrics to Prometheus and answers the probes of Kubernetes.
func Example() {
	ctx := context.Background()
	db, err := embedded.Open(":memory:")
	check(err)
	defer db.Close()
	check(chanq.Migrate(ctx, db, "orders", chanq.Config{}))

	metrics, probe := chanqprom.New(chanqprom.Config{}), chanqprobe.New()
	config := chanq.Config{Hooks: chanq.JoinHooks(metrics.Hooks(), probe.Hooks())}
	orders, err := chanq.Open[string](ctx, db, "orders", config)
	check(err)
	admin, err := chanqadmin.Open(ctx, db, "orders", chanq.Config{})
	check(err)
	defer metrics.Watch(admin)() // depth, age and consumers, in one program of many
	consumer, err := orders.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	probe.Add("orders", consumer)

	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.Handler())
	mux.Handle("/livez", probe.Live())
	mux.Handle("/readyz", probe.Ready())

	for _, path := range []string{"/livez", "/readyz"} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, answer.Code)
	}
	check(consumer.Shutdown(ctx))
	// Output:
	// /livez 200
	// /readyz 200
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
