import { Column, CreateDateColumn, Entity, ManyToOne, OneToMany, PrimaryGeneratedColumn, UpdateDateColumn, VersionColumn, DataSource } from "typeorm";
@Entity()
export class Account {
    @PrimaryGeneratedColumn("uuid") id: string;
    @Column({ unique: true }) name: string;
    @Column() password: string;
    @Column({ default: 0 }) notes: number;
    @OneToMany(() => Note, note => note.owner) written: Note[];
}
@Entity()
export class Note {
    @PrimaryGeneratedColumn() id: number;
    @Column() text: string;
    @ManyToOne(() => Account, account => account.written, { eager: true }) owner: Account;
    @OneToMany(() => Tag, tag => tag.note, { cascade: true }) tags: Tag[];
    @CreateDateColumn({ type: "timestamptz" }) created: Date;
    @UpdateDateColumn({ type: "timestamptz" }) updated: Date;
    @VersionColumn() version: number;
}
@Entity()
export class Tag {
    @PrimaryGeneratedColumn() id: number;
    @Column() name: string;
    @ManyToOne(() => Note, note => note.tags, { onDelete: "CASCADE" }) note: Note;
}
export const options = { type: "postgres" as const, url: process.env.DATABASE_URL, entities: [Account, Note, Tag] };
