import "reflect-metadata";
import { DataSource } from "typeorm";
import { options } from "./entities";
new DataSource({ ...options, synchronize: true }).initialize().then(source => source.destroy());
