import "reflect-metadata";
import { Body, CanActivate, ConflictException, Controller, Delete, ExecutionContext, Get, Injectable, Module, NotFoundException, Param, Post, Put, Req, UnauthorizedException, UseGuards } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { JwtModule, JwtService } from "@nestjs/jwt";
import { InjectDataSource, InjectRepository, TypeOrmModule } from "@nestjs/typeorm";
import * as bcrypt from "bcryptjs";
import { randomUUID } from "crypto";
import { DataSource, Repository } from "typeorm";
import { Account, Note, Tag, options } from "./entities";

@Injectable()
class Guard implements CanActivate {
    constructor(private jwt: JwtService) {}
    async canActivate(context: ExecutionContext) {
        const request = context.switchToHttp().getRequest();
        try { request.user = await this.jwt.verifyAsync((request.headers.authorization || "").slice(7)); } catch { throw new UnauthorizedException(); }
        return true;
    }
}
@Controller("auth")
class Auth {
    constructor(@InjectRepository(Account) private accounts: Repository<Account>, private jwt: JwtService) {}
    @Post("register") async register(@Body() body: any) {
        const { password, ...rest } = await this.accounts.save(this.accounts.create({ name: body.name, password: await bcrypt.hash(body.password, 6) }));
        return rest;
    }
    @Post("login") async login(@Body() body: any) {
        const account = await this.accounts.findOneBy({ name: body.name });
        if (!account || !(await bcrypt.compare(body.password, account.password))) throw new UnauthorizedException();
        return { token: await this.jwt.signAsync({ sub: account.id, jti: randomUUID() }) };
    }
}
@Controller("notes")
@UseGuards(Guard)
class Notes {
    constructor(@InjectRepository(Note) private notes: Repository<Note>, @InjectDataSource() private source: DataSource) {}
    @Get() async list() {
        const rows = await this.notes.find({ relations: { tags: true }, order: { updated: "DESC", id: "DESC", tags: { id: "ASC" } }, take: 20 });
        const [mine, count] = await Promise.all([this.notes.count(), this.source.query("SELECT count(*)::int AS n FROM account")]);
        return { title: process.env.CHANGED ? "Changed" : "Notes", rows, mine, count };
    }
    @Post() async add(@Req() request: any, @Body() body: any) {
        return this.source.transaction(async manager => {
            const owner = await manager.findOne(Account, { where: { id: request.user.sub }, lock: { mode: "pessimistic_write" } });
            await manager.increment(Account, { id: owner.id }, "notes", 1);
            return manager.save(manager.create(Note, { text: body.text, owner, tags: body.tags.map((name: string) => manager.create(Tag, { name })) }));
        });
    }
    @Get(":id") async one(@Param("id") id: number) {
        const note = await this.notes.findOne({ where: { id }, relations: { tags: true } });
        if (!note) throw new NotFoundException();
        return { ...note, seen: new Date() };
    }
    @Put(":id") async change(@Param("id") id: number, @Body() body: any) {
        const note = await this.notes.findOneByOrFail({ id });
        if (note.version !== body.version) throw new ConflictException();
        note.text = body.text;
        return this.notes.save(note);
    }
    @Delete(":id") async remove(@Param("id") id: number) {
        return this.notes.delete(id);
    }
}
@Module({
    imports: [TypeOrmModule.forRoot(options), TypeOrmModule.forFeature([Account, Note, Tag]), JwtModule.register({ global: true, secret: "a secret of the test", signOptions: { expiresIn: "10m" } })],
    controllers: [Auth, Notes],
    providers: [Guard],
})
class Application {}
async function main() {
    const app = await NestFactory.create(Application, { logger: ["error"] });
    await app.listen(Number(process.argv[2]), "127.0.0.1");
}
main();
