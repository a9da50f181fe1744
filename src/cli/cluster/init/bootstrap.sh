#!/bin/sh
# Patroni calls this once, on the first primary, with how to connect as the superuser.
set -e
# No standby is there yet that could confirm.
PGOPTIONS="-c synchronous_commit=local" exec /usr/lib/postgresql/{{postgres}}/bin/psql -v ON_ERROR_STOP=1 -q "$1" <<'SQL'
-- Below max_connections: servers must not take the connections of Patroni and of who repairs.
create role margay login connection limit 150 password '{{database_password}}';
create database margay owner margay;
SQL
