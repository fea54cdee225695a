module github.com/chanq/chanq/prove/ormtx

go 1.25.0

require (
	entgo.io/ent v0.14.5
	github.com/chanq/chanq v0.0.0
	github.com/jmoiron/sqlx v1.4.0
	github.com/stretchr/testify v1.12.1
	gorm.io/driver/postgres v1.6.0
	gorm.io/driver/sqlite v1.6.0
	gorm.io/gorm v1.31.1
)

replace github.com/chanq/chanq => ../..
