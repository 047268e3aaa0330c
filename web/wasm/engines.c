/* SPDX-FileCopyrightText: the stile authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of the page, for the library and for the simulator. */
#include "engines/registry.h"
#include "sim/engine.h"

extern const struct engine_class redis_class, redlock_class, etcd_class, zk_class;
extern const struct sim_engine_class sim_redis_class, sim_redlock_class, sim_etcd_class,
    sim_zookeeper_class;

const struct engine_entry engine_registry[] = {
    {.name = "redis", .schemes = "redis", .class = &redis_class},
    {.name = "redlock", .schemes = "redlock", .class = &redlock_class},
    {.name = "etcd", .schemes = "etcd", .class = &etcd_class},
    {.name = "zookeeper", .schemes = "zk", .class = &zk_class},
    {.name = NULL},
};

const struct sim_engine_class *const sim_engines[] = {
    &sim_redis_class, &sim_redlock_class, &sim_etcd_class, &sim_zookeeper_class, NULL,
};
