# Makes a project, and as many users as the load has, who may do all in it.

project = Project.create!(name: "Work", identifier: "work")
manager = Role.givable.first
USERS = 8
USERS.times do |number|
  user = User.new(firstname: "User", lastname: number.to_s, mail: "user-#{number}@example.com")
  user.login = "user-#{number}"
  user.password = "a password"
  user.save!
  Member.create!(project: project, principal: user, roles: [manager])
end
