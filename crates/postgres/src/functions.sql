-- The functions of a volume, in the schema of its tables (schema.sql), which is the first of the search path.
--
-- Functions have a number in their names: programs of two versions may use one database, each with its own functions.
-- A function that was ever released is never changed; a new one is added.

-- Several batches that do not meet: none writes what another one writes or asserts. Each is numbered from 1, and is done whole or,
-- if a precondition of it does not hold, not at all: `failed_numbers` has the first such one of each of `failed_batches`.
-- All locks are held before the transaction gets its number, so numbers are in the order of commits that meet.
-- Each statement sees what was committed before it began: a function that is volatile, at READ COMMITTED.
create or replace function commit_v3(
    in_lane bigint, in_call bigint, in_shard int, in_batches int,
    lock_ids bigint[], lock_alone bool[],
    pre_batches int[], pre_numbers int[], pre_kinds int[], pre_keys bytea[], pre_ends bytea[], pre_versions bigint[],
    put_batches int[], put_keys bytea[], put_values bytea[],
    deleted_batches int[], deleted_keys bytea[],
    set_batches int[], set_keys bytea[], set_values bigint[],
    add_batches int[], add_keys bytea[], add_values bigint[],
    max_batches int[], max_keys bytea[], max_values bigint[],
    changed bytea[],
    out version bigint, out failed_batches int[], out failed_numbers int[]
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    -- Preconditions that do not hold: the batch, and behind it 32 bits with the number.
    broken bigint[];
begin
    -- In the order of the arrays, which ascend.
    perform case when one.alone then pg_advisory_xact_lock(one.id) else pg_advisory_xact_lock_shared(one.id) end
    from unnest(lock_ids, lock_alone) as one(id, alone);

    -- Scalar questions and no `exists`: in an empty table the planner would answer those by reading all of it, also later.
    broken := array(
        select pre.batch::bigint << 32 | pre.number
        from unnest(pre_batches, pre_numbers, pre_kinds, pre_keys, pre_ends, pre_versions)
            as pre(batch, number, kind, first, behind, version)
        where case pre.kind
            when 0 then (select rows.version from rows where rows.key = pre.first) is distinct from pre.version
            when 1 then (select rows.version from rows where rows.key = pre.first) is null
            when 2 then (select rows.version from rows where rows.key = pre.first) is not null
            else (select rows.version from rows where rows.key >= pre.first and rows.key < pre.behind limit 1) is not null
        end
    );
    failed_batches := '{}';
    -- Mostly there is none, and an aggregate in each call would cost a fifth of it.
    if cardinality(broken) > 0 then
        select array_agg(failed.batch), array_agg(failed.number) into failed_batches, failed_numbers from (
            select (one.at >> 32)::int, min(one.at & 4294967295)::int from unnest(broken) as one(at) group by one.at >> 32
        ) as failed(batch, number);
    end if;
    if cardinality(failed_batches) = in_batches then
        return;
    end if;

    version := pg_current_xact_id()::text::bigint;
    if cardinality(deleted_keys) > 0 then
        select coalesce(array_agg(one.key), '{}') into deleted_keys
            from unnest(deleted_batches, deleted_keys) as one(batch, key) where one.batch <> all (failed_batches);
        delete from rows where key = any (deleted_keys);
        delete from counters where key = any (deleted_keys);
    end if;
    -- In the order of keys, here and below, so that no two wait for each other.
    if cardinality(set_keys) > 0 then
        select coalesce(array_agg(one.key), '{}') into deleted_keys
            from unnest(set_batches, set_keys) as one(batch, key) where one.batch <> all (failed_batches);
        delete from counters where key = any (deleted_keys);
        insert into counters(key, shard, value)
            select one.key, in_shard, one.value from unnest(set_batches, set_keys, set_values) as one(batch, key, value)
            where one.batch <> all (failed_batches) order by one.key
            on conflict (key, shard) do update set value = excluded.value;
    end if;
    -- One statement: each costs more than what it does. No part writes a row of another one. They run from the last one to the first,
    -- so additions come before what is raised, as in the function before this one.
    with put as (
        insert into rows(key, version, value)
            select put.key, commit_v3.version, put.value from unnest(put_batches, put_keys, put_values) as put(batch, key, value)
            where put.batch <> all (failed_batches)
            on conflict (key) do update set version = excluded.version, value = excluded.value
    ), raised as (
        insert into counters(key, shard, value)
            select one.key, in_shard, max(one.value) from unnest(max_batches, max_keys, max_values) as one(batch, key, value)
            where one.batch <> all (failed_batches) group by one.key order by one.key
            on conflict (key, shard) do update set value = greatest(counters.value, excluded.value)
    ), added as (
        insert into counters(key, shard, value)
            select one.key, in_shard, sum(one.value)::bigint
            from unnest(add_batches, add_keys, add_values) as one(batch, key, value)
            where one.batch <> all (failed_batches) group by one.key order by one.key
            on conflict (key, shard) do update set value = counters.value + excluded.value
    ), told as (
        insert into changes(version, keys)
            select commit_v3.version, string_agg(one.keys, '\x0000'::bytea)
            from unnest(changed) with ordinality as one(keys, batch)
            where one.batch <> all (failed_batches) and length(one.keys) > 0 having count(*) > 0
    )
    update lanes set call = in_call, version = commit_v3.version, failed = failed_batches
        where lane = in_lane and call = in_call - 1;
    if not found then
        raise exception 'call % of lane % was taken', in_call, in_lane using errcode = 'MG001';
    end if;
end $$;

-- One batch, as `commit_v3` does several: most calls have one, and cost a tenth less without what tells batches apart. Arrays are null where
-- they would be empty. `failed` is the number of the first precondition that does not hold. `counter_keys` has additions before what is
-- raised, each in the order of keys.
create or replace function commit_one_v1(
    in_lane bigint, in_call bigint, in_shard int, lock_ids bigint[], lock_alone bool[],
    pre_kinds int[], pre_keys bytea[], pre_ends bytea[], pre_versions bigint[],
    put_keys bytea[], put_values bytea[], deleted_keys bytea[],
    set_keys bytea[], set_values bigint[], counter_keys bytea[], counter_values bigint[],
    changed bytea,
    out version bigint, out failed int
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    broken int[];
begin
    perform case when one.alone then pg_advisory_xact_lock(one.id) else pg_advisory_xact_lock_shared(one.id) end
    from unnest(lock_ids, lock_alone) as one(id, alone);

    -- As in `commit_v3`: scalar questions and no `exists`. The numbers come in the order of the arrays, so the first is the smallest.
    broken := array(
        select pre.number
        from unnest(pre_kinds, pre_keys, pre_ends, pre_versions) with ordinality as pre(kind, first, behind, version, number)
        where case pre.kind
            when 0 then (select rows.version from rows where rows.key = pre.first) is distinct from pre.version
            when 1 then (select rows.version from rows where rows.key = pre.first) is null
            when 2 then (select rows.version from rows where rows.key = pre.first) is not null
            else (select rows.version from rows where rows.key >= pre.first and rows.key < pre.behind limit 1) is not null
        end
    );
    if cardinality(broken) > 0 then
        failed := broken[1];
        return;
    end if;

    version := pg_current_xact_id()::text::bigint;
    if deleted_keys is not null then
        delete from rows where key = any (deleted_keys);
        delete from counters where key = any (deleted_keys);
    end if;
    if set_keys is not null then
        delete from counters where key = any (set_keys);
        insert into counters(key, shard, value)
            select one.key, in_shard, one.value from unnest(set_keys, set_values) as one(key, value)
            on conflict (key, shard) do update set value = excluded.value;
    end if;
    -- A key of table 116, `t`, is a highest (`RowKind`); the other ones are sums.
    with put as (
        insert into rows(key, version, value)
            select put.key, commit_one_v1.version, put.value from unnest(put_keys, put_values) as put(key, value)
            on conflict (key) do update set version = excluded.version, value = excluded.value
    ), counted as (
        insert into counters(key, shard, value)
            select one.key, in_shard, one.value from unnest(counter_keys, counter_values) as one(key, value)
            on conflict (key, shard) do update set value = case when get_byte(counters.key, 0) = 116
                then greatest(counters.value, excluded.value) else counters.value + excluded.value end
    ), told as (
        insert into changes(version, keys) select commit_one_v1.version, changed where changed is not null
    )
    update lanes set call = in_call, version = commit_one_v1.version, failed = '{}'
        where lane = in_lane and call = in_call - 1;
    if not found then
        raise exception 'call % of lane % was taken', in_call, in_lane using errcode = 'MG001';
    end if;
end $$;

-- What became of a call: its version, or null if it is void from now on, and which of its batches are not part of it. Waits until
-- the call has ended.
create or replace function resolve_v2(in_lane bigint, in_call bigint, out version bigint, out failed int[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
    found_call bigint;
begin
    update lanes set call = in_call, version = null, failed = '{}' where lane = in_lane and call = in_call - 1;
    select call, lanes.version, lanes.failed into found_call, version, failed from lanes where lane = in_lane;
    if found_call is distinct from in_call then
        raise exception 'call % of lane % is not its last one', in_call, in_lane using errcode = 'MG001';
    end if;
    -- The answer waits for the standbys that the call may still wait for: this is written behind it.
    update lanes set call = call where lane = in_lane;
end $$;

-- The rows of several questions, of one moment. Kinds: 0 a row, 1 a sum, 2 a highest, 3 a range without counters, 4 one with.
-- Ranges share the limits in their order; a row without a key says that its range has more.
create or replace function read_v1(
    kinds int[], firsts bytea[], behinds bytea[], rows_max bigint[], keys_only bool[], in_rows bigint, in_bytes bigint
) returns table(ask int, key bytea, version bigint, value bytea) language plpgsql stable as $$
#variable_conflict use_column
declare
    rows_left bigint := in_rows;
    bytes_left bigint := in_bytes;
    is_first bool := true;
    taken bigint;
    found record;
begin
    for at in 1 .. coalesce(array_length(kinds, 1), 0) loop
        ask := at;
        if kinds[at] = 0 then
            return query select at, rows.key, rows.version, rows.value from rows where rows.key = firsts[at];
            continue;
        elsif kinds[at] = 1 then
            return query select at, counters.key, 0::bigint, int8send(sum(counters.value)::bigint)
                from counters where counters.key = firsts[at] group by counters.key;
            continue;
        elsif kinds[at] = 2 then
            return query select at, counters.key, 0::bigint, int8send(max(counters.value))
                from counters where counters.key = firsts[at] group by counters.key;
            continue;
        end if;
        taken := 0;
        for found in select * from range_v1(kinds[at] = 4, firsts[at], behinds[at], keys_only[at],
            least(rows_max[at], greatest(rows_left, 1)) + 1)
        loop
            if taken >= rows_max[at]
                or not is_first and (rows_left = 0 or bytes_left < length(found.key) + length(found.value))
            then
                key := null; version := 0; value := null;
                return next;
                exit;
            end if;
            is_first := false;
            taken := taken + 1;
            rows_left := greatest(rows_left - 1, 0);
            bytes_left := greatest(bytes_left - length(found.key) - length(found.value), 0);
            key := found.key; version := found.version; value := found.value;
            return next;
        end loop;
    end loop;
end $$;

create or replace function range_v1(
    has_counters bool, first bytea, behind bytea, only_keys bool, rows_max bigint
) returns table(key bytea, version bigint, value bytea) language plpgsql stable as $$
#variable_conflict use_column
begin
    if not has_counters then
        return query select rows.key, rows.version, case when only_keys then ''::bytea else rows.value end
            from rows where rows.key >= first and rows.key < behind order by rows.key limit rows_max;
    else
        return query select * from (
            select rows.key, rows.version, case when only_keys then ''::bytea else rows.value end
                from rows where rows.key >= first and rows.key < behind
            union all
            select counters.key, 0::bigint, case when only_keys then ''::bytea
                    when get_byte(counters.key, 0) = 116 then int8send(max(counters.value))
                    else int8send(sum(counters.value)::bigint) end
                from counters where counters.key >= first and counters.key < behind group by counters.key
        ) as both_kinds(key, version, value) order by key limit rows_max;
    end if;
end $$;

-- Commits behind a cursor that are visible to everybody, oldest first: none that has an earlier number is under way.
-- The first row has no keys and tells what is forgotten, the second the number behind the newest that there may be.
create or replace function changes_v1(after bigint, rows_max bigint) returns table(version bigint, keys bytea)
language sql stable as $$
    select forgotten, null::bytea from feed
    union all
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, null::bytea
    union all
    (select version, keys from changes
        where version > after and version < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        order by version limit rows_max)
$$;

-- Keeps the newest changes, so many of them.
create or replace function forget_v1(kept bigint) returns void language plpgsql volatile as $$
declare
    newest bigint;
begin
    select version into newest from changes order by version desc offset kept limit 1;
    if newest is not null then
        update feed set forgotten = greatest(forgotten, newest);
        delete from changes where version <= newest;
    end if;
end $$;
