-- The tables of a volume, in a schema of its own, which is the first of the search path. Some of these statements wait for all that read.

create table if not exists rows(
    key bytea primary key,
    -- The transaction that put the row last.
    version bigint not null,
    value bytea not null
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 1);
alter table rows alter value set storage external;

-- A counter is the sum, or the highest, of its shards. A `Highest` is stored with its first bit inverted, so that it compares.
create table if not exists counters(
    key bytea,
    shard int,
    value bigint not null,
    primary key (key, shard)
) with (fillfactor = 50);

-- Connections that commit. `call` is the last of its commits that was applied, or void.
create table if not exists lanes(
    lane bigint generated always as identity primary key,
    call bigint not null default 0,
    -- Of that commit; null if it is void.
    version bigint,
    -- Batches of that commit that are not part of it.
    failed int[] not null default '{}'
) with (fillfactor = 10);
-- Schemas that were made before it was there.
alter table lanes add column if not exists failed int[] not null default '{}';

-- Keys that the batches of each commit changed: the length in two bytes, then the key; length 0 between two batches.
create table if not exists changes(version bigint primary key, keys bytea not null);

-- The newest commit that `changes` does not hold any more.
create table if not exists feed(single bool primary key default true check (single), forgotten bigint not null);
insert into feed(forgotten) values (0) on conflict do nothing;
