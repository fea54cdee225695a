package chanqweb_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/embedded"
)

func ExampleNew() {
	db, err := embedded.Open(":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := chanq.Migrate(context.Background(), db, "mail", chanq.Config{}); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()

	page, err := chanqweb.New(db, chanqweb.Config{Title: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("/queues/", http.StripPrefix("/queues", page))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/queues/q/mail/", nil))
	fmt.Println(answer.Code)
	// Output: 200
}
